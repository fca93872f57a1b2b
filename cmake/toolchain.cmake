# Compiler, linker and sanitizer settings. They sit on one interface target, so that the static
# workload binaries, which run inside sandboxes, stay free of sanitizers.
find_program(TORPOR_CCACHE ccache)
if(TORPOR_CCACHE)
  # Precompiled headers need these two sloppiness settings; the hash of the content decides.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TORPOR_CCACHE})
endif()

add_library(torpor_flags INTERFACE)
target_compile_options(torpor_flags INTERFACE
  -Wall -Wextra -Werror=unused-result -Werror=return-type -Wno-missing-field-initializers -Wno-unused-parameter
  -fno-omit-frame-pointer
  -fPIC)  # one setting for libraries and programs, so that they share precompiled headers
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(torpor_flags INTERFACE -fpch-preprocess)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Debian's abseil was built with an older mangling of constrained templates.
  target_compile_options(torpor_flags INTERFACE -Wthread-safety -Werror=thread-safety
                         -fclang-abi-compat=17)
endif()
target_include_directories(torpor_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(torpor_flags INTERFACE TORPOR_VERSION="${PROJECT_VERSION}")

find_program(TORPOR_MOLD mold)
if(TORPOR_MOLD)
  target_link_options(torpor_flags INTERFACE -fuse-ld=mold)
endif()

if(TORPOR_SANITIZER STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(TORPOR_SANITIZER STREQUAL "thread")
  # Protobuf's headers add members to maps when they see this macro, and Debian's libprotobuf was
  # built without them.
  set(sanitize -fsanitize=thread -U__SANITIZE_THREAD__)
  target_compile_definitions(torpor_flags INTERFACE TORPOR_THREAD_SANITIZER)
elseif(TORPOR_SANITIZER STREQUAL "fuzzer")
  set(sanitize -fsanitize=fuzzer-no-link,address,undefined)
elseif(NOT TORPOR_SANITIZER STREQUAL "")
  message(FATAL_ERROR "TORPOR_SANITIZER=${TORPOR_SANITIZER}: use address, thread, fuzzer or nothing")
endif()
if(sanitize)
  target_compile_options(torpor_flags INTERFACE ${sanitize})
  target_link_options(torpor_flags INTERFACE ${sanitize})
endif()
