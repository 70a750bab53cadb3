"""The collector: event stream in, DuckDB store, reads over Arrow Flight, and what both front ends show."""
