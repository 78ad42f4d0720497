"""Batteries: each module or package here has one function that returns a `creche.scope.Plugin`; the core imports none."""
