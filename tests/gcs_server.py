"""A server that speaks as Google Cloud Storage does, of this machine's own, on a folder: `make engines` brings it."""

from tests.object_server import ObjectServer


class GcsServer(ObjectServer):
    program_name, package, bucket = "gcs-server", "gcsfs", "gs://bucket"

    def environment_at(self, address: str) -> dict[str, str]:
        return {
            "STORAGE_EMULATOR_HOST": f"http://{address}",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # it would ask Google by gRPC of what kind the bucket is
        }

    def arguments(self) -> list[str]:
        return [
            "-scheme=http", f"-host={self.host}", f"-port={self.port}", f"-public-host={self.address}",
            f"-external-url=http://{self.address}", "-backend=filesystem", f"-filesystem-root={self.folder / 'data'}",
        ]  # fmt: skip
