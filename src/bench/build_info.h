#pragma once

namespace torpor::bench {

// The compiler's flags of this build, and its sanitizer ("" = none).
const char* BuildFlags();
const char* BuildSanitizer();

}  // namespace torpor::bench
