"""The update: the click loss and its gradient, one large update of a minibatch, optimisers, checkpoints."""
