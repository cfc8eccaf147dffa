# PostgreSQL and an S3 API for container tests, on the test base image.
ARG BASE

FROM ${BASE} AS postgres
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/*
USER postgres
ARG PASSWORD
RUN echo "${PASSWORD}" > /tmp/password \
    && /usr/lib/postgresql/15/bin/initdb -D /var/lib/postgresql/data -U postgres -A md5 --pwfile=/tmp/password -E UTF8 --locale=C \
    && rm /tmp/password \
    && echo "host all all all md5" >> /var/lib/postgresql/data/pg_hba.conf
ENTRYPOINT ["/usr/lib/postgresql/15/bin/postgres", "-D", "/var/lib/postgresql/data", "-c", "listen_addresses=*", "-c", "max_connections=300", "-c", "unix_socket_directories="]

FROM ${BASE} AS s3
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
ARG MOTO
RUN pip install --no-cache-dir "moto[s3,server]==${MOTO}"
USER 65532:65532
ENTRYPOINT ["python", "-m", "moto.server", "-H", "0.0.0.0", "-p", "8333"]
