# The engine and this project's groups; the command says which part of it runs: relay, consume, migrate.
FROM python:3.13-slim
WORKDIR /project
COPY pyproject.toml README.md LICENSE ./
COPY stream ./stream
RUN pip install --no-cache-dir ".[demo]" && rm -rf stream build *.egg-info && useradd --system stream
COPY schemas ./schemas
COPY consumers ./consumers
USER stream
# One process, and it is the one that gets the signal.
ENTRYPOINT ["stream"]
