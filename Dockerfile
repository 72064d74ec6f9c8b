# Installs the locked dependencies with hashes. Runs unprivileged on a read-only root; state is in /var/lib/rowveil.
FROM python:3.11-slim AS build
WORKDIR /opt/rowveil
RUN ["python", "-m", "venv", "--without-pip", "/opt/rowveil"]
COPY requirements.lock ./
RUN ["python", "-m", "pip", "--python", "/opt/rowveil", "install", "--no-cache-dir", "--require-hashes", "-r", "requirements.lock"]
WORKDIR /opt/rowveil/app
COPY app app
COPY docs docs
COPY migrations migrations
COPY providers providers
COPY deploy/*.py deploy/
# `baseline`: for every processor with x86-64-v3 or armv8.2-a; `native`: for the type of processor that builds.
ARG KERNEL_CPU=baseline
ENV ROWVEIL_KERNEL_CPU=$KERNEL_CPU XDG_CACHE_HOME=/opt/rowveil/cache
RUN ["/opt/rowveil/bin/python", "-m", "providers.warm"]
# The cache is private to the user who compiles, here root; the service's user copies it.
RUN ["chmod", "-R", "a+rX", "/opt/rowveil/cache"]
RUN ["/opt/rowveil/bin/python", "-m", "compileall", "-q", "."]

FROM python:3.11-slim
# A new volume takes its owner from the folder below it: /srv/rowveil of several machines, /srv/secrets of setup.
RUN ["useradd", "--uid", "10001", "--user-group", "--home-dir", "/var/lib/rowveil", "--shell", "/usr/sbin/nologin", "rowveil"]
RUN ["install", "--directory", "--owner=10001", "--group=10001", "--mode=0700", "/var/lib/rowveil", "/var/cache/rowveil", "/srv/rowveil", "/srv/secrets"]
COPY --from=build /opt/rowveil /opt/rowveil
WORKDIR /opt/rowveil/app
USER 10001:10001
ARG KERNEL_CPU=baseline
ENV PATH=/opt/rowveil/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ROWVEIL_HOME=/var/lib/rowveil \
    ROWVEIL_HOST=0.0.0.0 \
    ROWVEIL_KERNEL_CPU=$KERNEL_CPU \
    ROWVEIL_LOG_FORMAT=json \
    XDG_CACHE_HOME=/var/cache/rowveil
VOLUME ["/var/lib/rowveil", "/var/cache/rowveil", "/tmp"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["python", "/opt/rowveil/app/deploy/start.py"]
CMD ["serve"]
