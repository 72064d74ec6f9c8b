"""A job's life in the service: acceptance, dispatcher, recorder. Start reading at `service`."""
