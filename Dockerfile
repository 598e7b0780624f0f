# The image that make image builds without a container engine, for those who build theirs with one:
#
#   docker build --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) --tag NAME .
#
# tools/release has the reasons; a test of it compares the two.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY kubelet-v0/go.mod kubelet-v0/go.sum kubelet-v0/
RUN go mod download && cd kubelet-v0 && go mod download
COPY LICENSE ./
COPY api api
COPY cmd cmd
COPY kubelet-v0 kubelet-v0
COPY pkg pkg
ARG VERSION=dev
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -mod=readonly \
    -ldflags="-s -w -buildid= -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o /rootfs/usr/bin/liqo-broker-vk ./cmd/liqo-broker-vk \
    && cd kubelet-v0 && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -mod=readonly \
    -ldflags="-s -w -buildid= -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o /rootfs/usr/bin/liqo-broker-vk-v0 .
RUN ln -s liqo-broker-vk /rootfs/usr/bin/virtual-kubelet \
    && ln -s liqo-broker-vk /rootfs/usr/bin/kubectl-broker \
    && mkdir /rootfs/etc /rootfs/licenses /rootfs/tmp \
    && chmod 1777 /rootfs/tmp \
    && cp LICENSE /rootfs/licenses/ \
    && echo root:x:0:0:root:/root:/sbin/nologin > /rootfs/etc/passwd \
    && echo nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin >> /rootfs/etc/passwd \
    && echo root:x:0: > /rootfs/etc/group \
    && echo nonroot:x:65532: >> /rootfs/etc/group

FROM scratch
COPY --from=build /rootfs/ /
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="liqo-broker-vk" \
      org.opencontainers.image.description="Broker and virtual kubelet for federations of clusters joined by Liqo" \
      org.opencontainers.image.source="https://github.com/capacitorset/liqo-broker-vk" \
      org.opencontainers.image.documentation="https://github.com/capacitorset/liqo-broker-vk/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
ENV PATH=/usr/bin
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/bin/liqo-broker-vk"]
