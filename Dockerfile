# syntax=docker/dockerfile:1

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY pkg pkg
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/liqo-broker-vk ./cmd/liqo-broker-vk
# The root file system of the image: /tmp for the serving certificate, and the path that Liqo runs.
RUN mkdir -p /rootfs/usr/bin /rootfs/tmp && chmod 1777 /rootfs/tmp \
    && cp /out/liqo-broker-vk /rootfs/usr/bin/ \
    && ln -s liqo-broker-vk /rootfs/usr/bin/virtual-kubelet

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /rootfs/ /
# Nobody, by number: runAsNonRoot cannot check a name.
USER 65532:65532
ENTRYPOINT ["/usr/bin/liqo-broker-vk"]
