"""The main job, shown on a sample table that the project makes itself."""
