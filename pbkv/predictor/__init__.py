"""Predictors of the agents a workflow calls next. One protocol, one file each."""
