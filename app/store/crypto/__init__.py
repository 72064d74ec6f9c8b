"""Keys, authenticated encryption, signatures and canonical JSON. Start reading at `sealing`."""
