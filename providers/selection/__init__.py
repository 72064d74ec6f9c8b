"""Selection of seeds, services and parameters by measured risk and utility."""
