"""RWN for tables larger than memory: a k-d tree on disk, read cell by cell. Start with `release`."""
