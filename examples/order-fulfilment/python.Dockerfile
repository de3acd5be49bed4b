# The workers in Python. pip downloads the packages of requirements.txt; with
# --build-arg PIP_NO_INDEX=1 it takes them from wheels/.
ARG BASE=python:3.11-slim

FROM ${BASE} AS dependencies
ARG PIP_NO_INDEX
WORKDIR /wheels
COPY requirements.txt wheels* ./
RUN python3 -m pip install --no-cache-dir --require-hashes --no-deps --find-links . \
      --target /site --requirement requirements.txt

FROM ${BASE}
WORKDIR /app
COPY --from=dependencies /site site
COPY worker.py .
ENV PYTHONPATH=/app/site
USER 65532:65532
# Python itself, not a shell: SIGTERM must reach the worker.
CMD ["python3", "worker.py"]
