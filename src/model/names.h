#pragma once
// Names that become paths and host names. Checked at the API, again in the node agent and again in
// the worker and the mover: none trusts the one before it. Pure functions.

#include <string>
#include <string_view>

namespace torpor {

bool IsLabel(std::string_view text);  // DNS-1123 label, 1 to 63
// A label that looks like `text`, for messages; empty when nothing of it could be kept.
std::string NearestLabel(std::string_view text);
bool IsSubdomain(std::string_view text);  // labels joined by '.', at most 253
// A file name inside a snapshot: a base name or dir/name, each component of A-Za-z0-9._- and 1 to
// 128 long, none '.' or '..' or beginning with '.'.
bool IsSnapshotFileName(std::string_view text);
// A relative path of clean components ('a/b/c', no empty, '.', '..' or NUL component), at most
// 1024.
bool IsCleanRelativePath(std::string_view text);
bool IsLabelKey(std::string_view text);    // [subdomain/]name, name 1 to 63 of A-Za-z0-9-_.
bool IsLabelValue(std::string_view text);  // the same name form, or empty
// sha256:<64 lower-case hex>
bool IsSha256Digest(std::string_view text);

}  // namespace torpor
