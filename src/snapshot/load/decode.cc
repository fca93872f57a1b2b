#include "snapshot/load/decode.h"

#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

constexpr size_t kOutputBytes = 1 << 20;
// Zeros are looked for in aligned pieces of this size: small enough to find holes of a guest's
// memory, large enough that a file does not fall apart into extents.
constexpr size_t kHoleBytes = 64 << 10;

bool IsZero(std::string_view bytes) {
  return bytes.empty() ||
         (bytes[0] == '\0' && memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

struct Decoder::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  ~Context() { ZSTD_freeDCtx(zstd); }
};

Decoder::Decoder(int fd, int64_t logical_bytes)
    : fd_(fd),
      size_(logical_bytes),
      context_(std::make_unique<Context>()),
      output_(kOutputBytes, '\0') {}

Decoder::~Decoder() = default;

Status Decoder::Init() {
  if (ZSTD_isError(
          ZSTD_DCtx_setParameter(context_->zstd, ZSTD_d_windowLogMax, kZstdWindowLogMax))) {
    return Fail(reasons::kInternal, "zstd does not take its window limit");
  }
  if (ftruncate(fd_, size_) != 0) return ErrnoStatus(errno, "truncate");
  return OkStatus();
}

Status Decoder::Append(std::string_view encoded) {
  ZSTD_inBuffer in{encoded.data(), encoded.size(), 0};
  // Output that did not fit is still inside zstd when the input is used up.
  for (bool full = false; in.pos < in.size || full;) {
    ZSTD_outBuffer out{output_.data(), output_.size(), 0};
    const size_t result = ZSTD_decompressStream(context_->zstd, &out, &in);
    if (ZSTD_isError(result)) {
      return Fail(reasons::kSnapshotCorrupt,
                  fmt::format("zstd at output offset {}: {}", written_, ZSTD_getErrorName(result)));
    }
    frame_open_ = result != 0;
    // After the end of a frame a call without input would ask for the next one.
    full = out.pos == out.size && frame_open_;
    RETURN_IF_ERROR(Write(std::string_view(output_.data(), out.pos)));
  }
  return OkStatus();
}

Status Decoder::Finish() {
  if (frame_open_) {
    return Fail(reasons::kSnapshotCorrupt, fmt::format("the stream is cut at offset {}", written_));
  }
  if (written_ != size_) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("the stream holds {} bytes, not {}", written_, size_));
  }
  return OkStatus();
}

Status Decoder::Write(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > size_ - written_) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("the stream holds more than the {} bytes of its file", size_));
  }
  // Neighbouring pieces with data go in one write.
  size_t run = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t offset = static_cast<size_t>(written_) + at;
    const size_t piece = std::min(bytes.size() - at, kHoleBytes - offset % kHoleBytes);
    if (IsZero(bytes.substr(at, piece))) {
      RETURN_IF_ERROR(WriteRun(bytes.substr(run, at - run), written_ + static_cast<int64_t>(run)));
      run = at + piece;
    }
    at += piece;
  }
  RETURN_IF_ERROR(WriteRun(bytes.substr(run), written_ + static_cast<int64_t>(run)));
  written_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

Status Decoder::WriteRun(std::string_view bytes, int64_t offset) {
  while (!bytes.empty()) {
    ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

}  // namespace torpor::snapshot
