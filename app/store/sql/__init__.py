"""All SQL of the service: tables, transactions and queries. Start reading at `models`."""
