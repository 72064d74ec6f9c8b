"""Browser pages and the OpenAPI document; start reading at `console`."""
