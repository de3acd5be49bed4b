FROM python:3.11-slim
RUN pip install --no-cache-dir bullmq
COPY worker.py /app/
# Python itself, not a shell: SIGTERM must reach the worker.
CMD ["python", "/app/worker.py"]
