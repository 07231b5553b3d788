"""What a ranking is worth: NDCG, exact retrieval, BM25 to compare with, and how sure a difference is."""
