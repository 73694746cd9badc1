"""The pipeline over any number of rows: jobs, parts, streams, in one process or on Ray."""
