# The operator's image. The build needs no network: the context's wheels/ holds what
# locks/runtime.txt pins, fetched by hash beforehand. BASE is any image with Python 3.11 and pip.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
COPY wheels /wheels
COPY locks/runtime.txt /runtime.txt
RUN python3 -m pip install --no-cache-dir --no-compile --no-index --no-deps --require-hashes \
      --find-links /wheels --target /site --requirement /runtime.txt

FROM ${BASE}
COPY --from=dependencies /site /app/site
COPY operator /app/operator
ENV PYTHONPATH=/app/operator:/app/site \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python3", "-m", "kopf", "run", "--standalone"]
CMD ["--all-namespaces", "operator/main.py"]
