"""Sealed files: stored tables and the scratch files of running jobs. Start reading at `sealed_files`."""
