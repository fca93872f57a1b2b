#include "snapshot/save/object_writer.h"

#include <cstring>

#include "model/reasons.h"

namespace torpor::snapshot {

ObjectWriter::~ObjectWriter() {
  // The parts on their way use the upload and our buffers. The upload aborts itself.
  WaitForSends(0).IgnoreError();
}

Status ObjectWriter::CheckFits(int64_t bytes) const {
  if (bytes <= plan_.object_bytes_max - bytes_) return OkStatus();
  return Fail(reasons::kInternal, fmt::format("{} does not fit its upload plan of {} bytes", key_,
                                              plan_.object_bytes_max));
}

Status ObjectWriter::Append(std::string_view bytes) {
  RETURN_IF_ERROR(CheckFits(static_cast<int64_t>(bytes.size())));
  bytes_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (part_.size() == 0) RETURN_IF_ERROR(TakePart());
    const auto n = std::min(bytes.size(), static_cast<size_t>(plan_.part_bytes - filled_));
    memcpy(part_.data() + filled_, bytes.data(), n);
    filled_ += static_cast<int64_t>(n);
    bytes.remove_prefix(n);
    // A full part goes when more comes: the last one is sent by Finish.
    if (filled_ == plan_.part_bytes && !bytes.empty()) RETURN_IF_ERROR(SendPart());
  }
  return OkStatus();
}

StatusOr<char*> ObjectWriter::Space(int64_t bytes) {
  RETURN_IF_ERROR(CheckFits(bytes));
  if (part_.size() == 0) RETURN_IF_ERROR(TakePart());
  return part_.data() + filled_;
}

void ObjectWriter::Filled(int64_t bytes) {
  filled_ += bytes;
  bytes_ += bytes;
}

// A buffer for the next part: one that is free, a new one, or the first that comes back.
Status ObjectWriter::TakePart() {
  for (;;) {
    int sending = 0;
    {
      MutexLock lock(&mu_);
      RETURN_IF_ERROR(TakeFailure());
      if (!free_.empty()) {
        part_ = std::move(free_.back());
        free_.pop_back();
        return OkStatus();
      }
      sending = sending_;
    }
    const bool first = buffers_ == 0;
    const bool more = !first && tools_.hold != nullptr && buffers_ < plan_.parts_at_once_max &&
                      tools_.hold->bytes() + plan_.part_bytes <= plan_.held_bytes_max &&
                      tools_.hold->TryGrow(plan_.part_bytes);
    if (first || more) {
      ++buffers_;
      part_ = tools_.buffers->Take(plan_.part_bytes);
      return OkStatus();
    }
    RETURN_IF_ERROR(WaitForSends(sending - 1));
  }
}

Status ObjectWriter::SendPart() {
  if (plan_.path == UploadPath::kSingle) {
    return Fail(reasons::kInternal, fmt::format("{} does not fit the one request planned", key_));
  }
  if (upload_ == nullptr) {
    ASSIGN_OR_RETURN(upload_, store_->Begin(key_, plan_.part_bytes));
  }
  const int number = ++parts_sent_;
  const int64_t bytes = std::exchange(filled_, 0);
  if (tools_.senders == nullptr) return upload_->PutPart(number, part_.View(bytes));
  {
    MutexLock lock(&mu_);
    ++sending_;
  }
  // Functions in a queue are copied, so the buffer travels behind a pointer.
  auto part = std::make_shared<Buffer>(std::move(part_));
  tools_.senders->Run([this, number, bytes, part] {
    Status status = upload_->PutPart(number, part->View(bytes));
    MutexLock lock(&mu_);
    if (!status.ok() && failed_.ok()) failed_ = std::move(status);
    free_.push_back(std::move(*part));
    --sending_;
    sent_.SignalAll();
  });
  return OkStatus();
}

Status ObjectWriter::WaitForSends(int at_most) {
  MutexLock lock(&mu_);
  while (sending_ > std::max(at_most, 0)) sent_.Wait(&mu_);
  return TakeFailure();
}

Status ObjectWriter::TakeFailure() {
  if (failed_.ok()) return OkStatus();
  return std::exchange(failed_, Fail(reasons::kInternal, "a part failed before"));
}

void ObjectWriter::GiveBackSurplus() {
  if (tools_.hold == nullptr || buffers_ <= 1 || !tools_.hold->Wanted()) return;
  std::vector<Buffer> surplus;
  {
    MutexLock lock(&mu_);
    while (!free_.empty() && static_cast<int>(surplus.size()) + 1 < buffers_) {
      surplus.push_back(std::move(free_.back()));
      free_.pop_back();
    }
  }
  buffers_ -= static_cast<int>(surplus.size());
  const auto bytes = static_cast<int64_t>(surplus.size()) * plan_.part_bytes;
  surplus.clear();
  tools_.hold->Shrink(bytes);
}

Status ObjectWriter::Finish() {
  if (plan_.path == UploadPath::kSingle) return store_->Put(key_, part_.View(filled_));
  RETURN_IF_ERROR(SendPart());
  RETURN_IF_ERROR(WaitForSends(0));
  RETURN_IF_ERROR(upload_->Complete());
  upload_.reset();
  return OkStatus();
}

}  // namespace torpor::snapshot
