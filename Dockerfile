# The image of the operator: Python, its standard library, the dependencies and operator/. It contains
# no shell, no package manager, no pip and no compiler, and no file belongs to the user that runs it.
#
# `make image` builds it. The build needs no network: wheels/ in its context contains the packages
# that locks/runtime.txt pins, downloaded and verified by hash. BASE is any Debian image with Python
# 3.11 and pip; the interpreter and its libraries are copied from it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS parts
COPY wheels /wheels
COPY locks/runtime.txt /
RUN python3 -m pip install --no-cache-dir --no-compile --no-index --no-deps --require-hashes \
      --find-links /wheels --target /app/site --requirement /runtime.txt
COPY operator /app/operator
COPY deploy/image/gather.py /
RUN python3 /gather.py /image /app

# Layers that change least come first, so an update of the operator alone is a small layer.
FROM scratch
COPY --from=parts /image /
COPY --from=parts /app/site /app/site
COPY --from=parts /app/operator /app/operator
ENV PATH=/usr/local/bin:/usr/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app/operator:/app/site \
    PYTHONUNBUFFERED=1 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /app
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python3", "/app/operator/main.py"]
CMD ["--all-namespaces"]
