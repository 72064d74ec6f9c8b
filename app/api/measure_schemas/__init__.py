"""Response models of measures: the value of each one, its interval, and the texts that explain it.

They are schemas alone (`app.api.report_schemas.SchemaOf`): a stored report is sent as it was made, so that a
report of an earlier version keeps all its figures.
"""
