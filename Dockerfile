# The workers for Cloud Run: one process with threads, as a user without rights, every package pinned with its hash.

FROM python:3.12.8-slim-bookworm AS build
WORKDIR /build
RUN python -m venv /venv
COPY constraints/runtime.txt constraints/
RUN /venv/bin/pip install --no-cache-dir --require-hashes -r constraints/runtime.txt
COPY pyproject.toml README.md cli.py service.py ./
COPY core core
COPY effects effects
COPY fixtures fixtures
COPY interpreters interpreters
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12.8-slim-bookworm
RUN useradd --system --uid 10001 worker
COPY --from=build /venv /venv
COPY service.py /app/service.py
USER worker
WORKDIR /app
# Pictures are given back to the system when they are stored, instead of being kept by each thread for its next one.
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_MMAP_THRESHOLD_=262144 \
    WORKERS=1 THREADS=8 FUNCTION_TARGET=worker_chart_export FUNCTION_SIGNATURE_TYPE=cloudevent
CMD ["functions-framework", "--source", "/app/service.py"]
