"""One training: started, shared out to workers here or on Ray, reported, and taken up again after a kill."""
