#include "workloads/glutton/ram.h"

#include <sys/mman.h>

#include <algorithm>

#include "workloads/base/io.h"

namespace torpor::workloads::glutton {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kMaxArrays = 4096;

uint64_t Mapped(uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

}  // namespace

Ram::Array::~Array() {
  if (data != nullptr) ::munmap(data, Mapped(size));
}

std::shared_ptr<Ram::Array> Ram::Find(const std::string& key, bool create) {
  const std::lock_guard lock(mu_);
  const auto found = arrays_.find(key);
  if (found != arrays_.end()) return found->second;
  if (!create || arrays_.size() >= kMaxArrays) return nullptr;
  return arrays_[key] = std::make_shared<Array>();
}

// Changes the mapping and keeps the old one when there is no memory. The caller holds array->mu.
Status Ram::Resize(Array* array, uint64_t size) {
  const uint64_t before = Mapped(array->size);
  const uint64_t after = Mapped(size);
  {
    const std::lock_guard lock(mu_);
    if (after > before && (after > limit_bytes_ || total_bytes_ - before > limit_bytes_ - after)) {
      return Internal("arrays of " + std::to_string(total_bytes_ - before + after) +
                      " bytes exceed the memory of " + std::to_string(limit_bytes_) + " bytes");
    }
    total_bytes_ += after - before;
  }
  void* data = array->data;
  if (after == 0) {
    if (data != nullptr) ::munmap(data, before);
    data = nullptr;
  } else if (data == nullptr) {
    data = ::mmap(nullptr, after, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else if (after != before) {
    data = ::mremap(data, before, after, MREMAP_MAYMOVE);
  }
  if (data == MAP_FAILED) {
    const Status status = Internal(ErrnoText("mapping " + std::to_string(size) + " bytes"));
    const std::lock_guard lock(mu_);
    total_bytes_ += before - after;
    return status;
  }
  array->data = static_cast<unsigned char*>(data);
  array->size = size;
  return Status();
}

Status Ram::Write(const std::string& key, uint64_t size, RamMode mode, FillKind kind,
                  uint64_t* cursor) {
  const std::shared_ptr<Array> array = Find(key, mode != RamMode::kRotate);
  if (array == nullptr) {
    return mode == RamMode::kRotate ? NotFound("no array '" + key + "'")
                                    : Internal("too many arrays");
  }
  const std::lock_guard lock(array->mu);
  FastRandom random;
  if (mode == RamMode::kRotate) {
    // An array whose first mapping failed is no array.
    if (array->size == 0) return NotFound("array '" + key + "' is empty");
    const uint64_t total = std::min(size, array->size);
    const uint64_t first = std::min(total, array->size - array->cursor);
    random.Fill(kind, array->data + array->cursor, first);
    random.Fill(kind, array->data, total - first);
    array->cursor = (array->cursor + total) % array->size;
  } else {
    if (mode == RamMode::kTruncate || size > array->size) {
      if (Status status = Resize(array.get(), size); !status.ok()) return status;
    }
    if (mode == RamMode::kTruncate) array->cursor = 0;
    random.Fill(kind, array->data, size);
  }
  *cursor = array->cursor;
  return Status();
}

Status Ram::Read(const std::string& key, std::optional<uint64_t> size, uint64_t* bytes_read,
                 uint32_t* checksum) {
  const std::shared_ptr<Array> array = Find(key, false);
  if (array == nullptr) return NotFound("no array '" + key + "'");
  const std::lock_guard lock(array->mu);
  const uint64_t end = std::min(size.value_or(array->size), array->size);
  unsigned char sum = 0;
  for (uint64_t i = 0; i < end; i += kPage) sum ^= array->data[i];
  *bytes_read = end;
  *checksum = sum;
  return Status();
}

uint64_t Ram::TotalBytes() const {
  const std::lock_guard lock(mu_);
  return total_bytes_;
}

}  // namespace torpor::workloads::glutton
