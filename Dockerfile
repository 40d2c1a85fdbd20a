# syntax=docker/dockerfile:1
# A small image with the one binary, run by nobody in particular.
#
#   docker build -t tollgate .
#   docker run --rm tollgate config example > tollgate.toml
#
# Nothing is fetched but the two base images and, by cargo, the crates that Cargo.lock names.

# The version of rust-toolchain.toml. The variable makes rustup use it as it is: the file also asks for clippy and
# rustfmt, which a build does not need and which would be fetched.
FROM rust:1.95.0-bookworm AS build
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
# The directories of cargo are kept between builds, and are no part of the image: hence the copy.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package tollgate --bin tollgate \
    && cp target/release/tollgate /tollgate \
    && mkdir /data

# The same Debian as above, for the same libc; it has no shell and no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /tollgate /usr/bin/tollgate
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/tollgate/
# Owned by the user of the image, so that a volume that is mounted here for the first time is as well.
COPY --from=build --chown=nonroot:nonroot /data /var/lib/tollgate
VOLUME /var/lib/tollgate
USER nonroot:nonroot
# Clients, peers, HTTP (metrics and health).
EXPOSE 7400 7401 7402
# SIGTERM hands leadership on. Give it longer than server.shutdown_grace_ms: docker stop --time 30.
STOPSIGNAL SIGTERM
# No HEALTHCHECK: where HTTP is served is for the configuration to say. A probe is `tollgate health`, or `tollgate health
# --live` for one that has the container started again.
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["server", "--config", "/etc/tollgate/tollgate.toml"]
