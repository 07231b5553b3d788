"""Training on a CUDA GPU: the reference path's tensors on a device, and fused kernels for the recurrence.

Nothing in this package has run on a GPU yet (docs/gpu.md says what was checked without one, and how).
"""
