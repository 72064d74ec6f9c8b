"""What builds the documentation's site besides MkDocs."""
