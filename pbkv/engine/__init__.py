"""The embedded engine: a discrete-event model of one GPU server with SGLang's two-tier cache and the product's own policies."""
