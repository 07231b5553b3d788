"""Evaluation of rankings: NDCG, exact retrieval, baselines such as BM25, and significance tests."""
