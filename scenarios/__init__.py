"""What is played: schemas, seeded generators, importers and the packaged splits in `data/`."""
