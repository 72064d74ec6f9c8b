# Builds from the lock with hashes; runs as nobody, with all state in /var/lib/rowveil.
FROM python:3.11-slim AS build
RUN python -m venv /opt/rowveil
COPY requirements.lock .
RUN /opt/rowveil/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
WORKDIR /opt/rowveil/app
COPY app app
COPY migrations migrations
COPY providers providers
# The kernels are compiled for a machine, at its first start, into a folder that stays with the state.

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/rowveil --create-home rowveil
COPY --from=build /opt/rowveil /opt/rowveil
WORKDIR /opt/rowveil/app
USER 10001
ENV PATH=/opt/rowveil/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ROWVEIL_HOME=/var/lib/rowveil \
    ROWVEIL_HOST=0.0.0.0 \
    ROWVEIL_LOG_FORMAT=json \
    XDG_CACHE_HOME=/var/lib/rowveil/cache
VOLUME /var/lib/rowveil
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz')"]
ENTRYPOINT ["python", "-m", "app"]
CMD ["serve"]
