"""Model of a job's time on several workers, from measured costs of its steps."""
