#pragma once
// A multipart upload under way at a bucket; see xml_store.h.

#include <map>
#include <string>

#include "base/sync.h"
#include "objstore/object_store.h"
#include "objstore/rules.h"
#include "objstore/xml/xml_client.h"

namespace torpor::objstore {

class XmlUpload : public MultipartUpload {
 public:
  static StatusOr<std::unique_ptr<XmlUpload>> Begin(XmlClient* client, const std::string& key,
                                                    int64_t part_bytes);
  ~XmlUpload() override { Abort(); }

  Status PutPart(int number, std::string_view bytes) override EXCLUDES(mu_);
  // The same with bytes of an object that is there.
  Status CopyPart(int number, const std::string& from, ByteRange range) EXCLUDES(mu_);
  Status Complete() override EXCLUDES(mu_);
  void Abort() override EXCLUDES(mu_);

 private:
  XmlUpload(XmlClient* client, std::string key, std::string id, int64_t part_bytes)
      : client_(client), key_(std::move(key)), id_(std::move(id)), ledger_(part_bytes) {}
  Status Arrived(int number, size_t bytes, std::string etag) EXCLUDES(mu_);

  XmlClient* const client_;
  const std::string key_;
  const std::string id_;
  PartLedger ledger_;
  Mutex mu_;
  std::map<int, std::string> etags_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false;
};

// Ends an upload that was begun; OK also when it is gone already.
Status AbortUpload(XmlClient* client, const std::string& key, const std::string& id);

}  // namespace torpor::objstore
