"""The similarity of a query's vector and a document's: a model is trained for one, and a release records which.

cosine      vectors of length 1: a score is their dot product
euclidean   vectors as they are: a score is minus their distance. For means and deviations concatenated the distance is
            W2, the 2-Wasserstein distance of the two diagonal Gaussians

Either way a higher score is nearer.
"""

from typing import Literal

Similarity = Literal["cosine", "euclidean"]
