"""Help: the documentation as pages of the service, without internet access; start reading at `routes`."""
