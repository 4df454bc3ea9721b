"""The privacy gateway: true positions in, perturbed positions out, in the protocols of trackers and their servers."""
