"""The world: documents, objects, HTTP, clock, logs, and the loop that performs effects.

Owns every touch of the outside. Must not decide anything about the business.
"""
