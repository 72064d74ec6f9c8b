"""Method of LOCALITY: segments of sorted values, the polytope of each, and a random walk inside it.

Start with `redraw.Batch`, whose methods are the steps of `providers.services.locality.anonymise`.
`segmentation` and `segments` cut the fields, `relations` extracts and selects localities, `polytope` centres
and rounds, `hit_and_run` walks, and `publish` rounds and verifies. `properties` and the modules `property_*`
handle the user's own relations.
"""
