"""Series of tables in which a unit keeps its partner."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_25_series"
down_revision = "2026_11_24b_delivery_problems"
compatible = True
"""An older replica fails a job with a series as one with an unknown parameter, and reads nothing of these."""

_INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_OF_SERIES = sa.text("series_id IS NOT NULL")


def upgrade() -> None:
    """Create the tables, empty, and the columns of jobs with the index of jobs of a series."""
    op.create_table(
        "series",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("owner", sa.String(300), nullable=False),
        sa.Column("project", sa.String(64)),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_series_owner_name")),
    )
    op.create_index("ix_series_project_id", "series", ["project", "id"])
    op.create_table(
        "series_pairs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("series_id", sa.String(36), nullable=False),
        sa.Column("wave", _INT, nullable=False),
        sa.Column("part", _INT, nullable=False),
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("units", _INT, nullable=False),
        sa.Column("ids", sa.String(8), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sealed_pairs", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series_pairs")),
        sa.UniqueConstraint("series_id", "wave", "part", name=op.f("uq_series_pairs_series_id_wave_part")),
    )
    op.add_column("jobs", sa.Column("series_id", sa.String(36)))
    op.add_column("jobs", sa.Column("series_base", _INT))
    op.create_index(
        "ix_jobs_series_id", "jobs", ["series_id"], sqlite_where=_OF_SERIES, postgresql_where=_OF_SERIES
    )


def downgrade() -> None:
    """Drop all series with their pairs, and the columns of jobs."""
    op.drop_index("ix_jobs_series_id", "jobs")
    op.drop_column("jobs", "series_base")
    op.drop_column("jobs", "series_id")
    op.drop_table("series_pairs")
    op.drop_index("ix_series_project_id", "series")
    op.drop_table("series")
