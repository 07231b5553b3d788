"""A search log -> the private daily aggregate; a store's days, and erasing a person from them."""
