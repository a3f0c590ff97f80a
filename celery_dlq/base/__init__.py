"""The ground floor, which every room may import: values as JSON, secrets, processes, addresses."""
