// The bounds of containers in a template: each at, above and below.

#include "api/testing/template_cases.h"

namespace torpor::api {
namespace {

using namespace template_cases;

std::vector<Case> MetadataAndContainers() {
  return {
      {"as it is", [](auto*) {}, {}},
      {"no metadata", [](auto* t) { t->clear_metadata(); }, {"metadata"}},
      {"no atespace",
       [](auto* t) { t->mutable_metadata()->clear_atespace(); },
       {"metadata.atespace"}},
      {"name of 63", [](auto* t) { t->mutable_metadata()->set_name(Repeat(63)); }, {}},
      {"name of 64",
       [](auto* t) { t->mutable_metadata()->set_name(Repeat(64)); },
       {"metadata.name"}},
      {"name is a path",
       [](auto* t) { t->mutable_metadata()->set_name("../x"); },
       {"metadata.name"}},
      {"uid and version are ignored",
       [](auto* t) {
         t->mutable_metadata()->set_uid("x");
         t->mutable_metadata()->set_version(-1);
       },
       {}},
      {"no container", [](auto* t) { t->clear_containers(); }, {"containers"}},
      {"10 containers", [](auto* t) { AddContainers(t, 10); }, {}},
      {"11 containers", [](auto* t) { AddContainers(t, 11); }, {"containers"}},
      {"twice the same name",
       [](auto* t) { *t->add_containers() = t->containers(0); },
       {"containers[1].name"}},
      {"pause", [](auto* t) { C(t)->set_name("pause"); }, {"containers[0].name"}},
      {"no image", [](auto* t) { C(t)->clear_image(); }, {"containers[0].image"}},
      {"image by tag", [](auto* t) { C(t)->set_image("a/b:latest"); }, {"containers[0].image"}},
      {"image with a short digest",
       [](auto* t) { C(t)->set_image("a@sha256:00"); },
       {"containers[0].image"}},
      {"image with tag and digest", [](auto* t) { C(t)->set_image("h:5000/a/b:1" + kDigest); }, {}},
      {"image that climbs",
       [](auto* t) { C(t)->set_image("../../a" + kDigest); },
       {"containers[0].image"}},
      {"image with an empty segment",
       [](auto* t) { C(t)->set_image("a//b" + kDigest); },
       {"containers[0].image"}},
      {"image without a name", [](auto* t) { C(t)->set_image(kDigest); }, {"containers[0].image"}},
      {"image of 512",
       [](auto* t) { C(t)->set_image(Repeat(512 - kDigest.size()) + kDigest); },
       {}},
      {"image of 513",
       [](auto* t) { C(t)->set_image(Repeat(513 - kDigest.size()) + kDigest); },
       {"containers[0].image"}},
      {"64 words",
       [](auto* t) {
         for (int i = 0; i < 64; ++i) C(t)->add_command("x");
       },
       {}},
      {"65 words",
       [](auto* t) {
         for (int i = 0; i < 65; ++i) C(t)->add_command("x");
       },
       {"containers[0].command"}},
      {"65 args",
       [](auto* t) {
         for (int i = 0; i < 65; ++i) C(t)->add_args("x");
       },
       {"containers[0].args"}},
      {"argument of 4096 characters", [](auto* t) { C(t)->add_args(Repeat(4096, "\u00e4")); }, {}},
      {"argument of 4097",
       [](auto* t) { C(t)->add_args(Repeat(4097)); },
       {"containers[0].args[0]"}},
      {"argument with NUL",
       [](auto* t) { C(t)->add_args(std::string("a\0b", 3)); },
       {"containers[0].args[0]"}},
      {"32 variables",
       [](auto* t) {
         for (int i = 0; i < 32; ++i) Env(t, "E" + std::to_string(i), "");
       },
       {}},
      {"33 variables",
       [](auto* t) {
         for (int i = 0; i < 33; ++i) Env(t, "E" + std::to_string(i), "");
       },
       {"containers[0].env"}},
      {"variable twice",
       [](auto* t) {
         Env(t, "A", "1");
         Env(t, "A", "2");
       },
       {"containers[0].env[1].name"}},
      {"variable without a name", [](auto* t) { Env(t, "", "1"); }, {"containers[0].env[0].name"}},
      {"variable with =", [](auto* t) { Env(t, "A=B", "1"); }, {"containers[0].env[0].name"}},
      {"variable of 256", [](auto* t) { Env(t, Repeat(256), "1"); }, {}},
      {"variable of 257", [](auto* t) { Env(t, Repeat(257), "1"); }, {"containers[0].env[0].name"}},
      {"value of 32768", [](auto* t) { Env(t, "A", Repeat(32768)); }, {}},
      {"value of 32769",
       [](auto* t) { Env(t, "A", Repeat(32769)); },
       {"containers[0].env[0].value"}},
  };
}

std::vector<Case> ProbesMountsAndCapabilities() {
  return {
      {"probe", [](auto* t) { Probe(t, "/a%20b", 1, 1); }, {}},
      {"probe at the upper bounds", [](auto* t) { Probe(t, "", 65535, 3600); }, {}},
      {"probe without http_get",
       [](auto* t) { C(t)->mutable_wakeup_probe(); },
       {"containers[0].wakeup_probe.http_get"}},
      {"probe without a port",
       [](auto* t) { Probe(t, "/", 0, 0); },
       {"containers[0].wakeup_probe.http_get.port"}},
      {"port 65536",
       [](auto* t) { Probe(t, "/", 65536, 0); },
       {"containers[0].wakeup_probe.http_get.port"}},
      {"timeout -1",
       [](auto* t) { Probe(t, "/", 80, -1); },
       {"containers[0].wakeup_probe.timeout_seconds"}},
      {"timeout 3601",
       [](auto* t) { Probe(t, "/", 80, 3601); },
       {"containers[0].wakeup_probe.timeout_seconds"}},
      {"relative path",
       [](auto* t) { Probe(t, "a", 80, 0); },
       {"containers[0].wakeup_probe.http_get.path"}},
      {"bad escape",
       [](auto* t) { Probe(t, "/%2", 80, 0); },
       {"containers[0].wakeup_probe.http_get.path"}},
      {"header injection",
       [](auto* t) { Probe(t, "/ HTTP/1.1\r\nx: y", 80, 0); },
       {"containers[0].wakeup_probe.http_get.path"}},
      {"path of 1024", [](auto* t) { Probe(t, "/" + Repeat(1023), 80, 0); }, {}},
      {"path of 1025",
       [](auto* t) { Probe(t, "/" + Repeat(1024), 80, 0); },
       {"containers[0].wakeup_probe.http_get.path"}},
      {"32 mounts", [](auto* t) { AddMounts(t, 32); }, {}},
      {"33 mounts", [](auto* t) { AddMounts(t, 33); }, {"containers[0].volume_mounts"}},
      {"mount of no volume",
       [](auto* t) {
         AddMounts(t, 1);
         t->mutable_volumes(0)->set_name("w");
       },
       {"containers[0].volume_mounts[0].name"}},
      {"mount at /", [](auto* t) { Mount(t, "/"); }, {"containers[0].volume_mounts[0].mount_path"}},
      {"relative mount",
       [](auto* t) { Mount(t, "a"); },
       {"containers[0].volume_mounts[0].mount_path"}},
      {"mount that climbs",
       [](auto* t) { Mount(t, "/a/../etc"); },
       {"containers[0].volume_mounts[0].mount_path"}},
      {"mount with a slash at the end",
       [](auto* t) { Mount(t, "/a/"); },
       {"containers[0].volume_mounts[0].mount_path"}},
      {"mount with :",
       [](auto* t) { Mount(t, "/a:b"); },
       {"containers[0].volume_mounts[0].mount_path"}},
      {"mount with a line feed",
       [](auto* t) { Mount(t, "/a\nb"); },
       {"containers[0].volume_mounts[0].mount_path"}},
      {"mount twice",
       [](auto* t) {
         AddMounts(t, 2);
         C(t)->mutable_volume_mounts(1)->set_mount_path("/m0");
       },
       {"containers[0].volume_mounts[1].mount_path"}},
      {"mount inside a mount",
       [](auto* t) {
         AddMounts(t, 2);
         C(t)->mutable_volume_mounts(1)->set_mount_path("/m0/x");
       },
       {"containers[0].volume_mounts[1].mount_path"}},
      {"mount beside one with the same beginning",
       [](auto* t) {
         AddMounts(t, 2);
         C(t)->mutable_volume_mounts(1)->set_mount_path("/m00");
       },
       {}},
      {"capabilities",
       [](auto* t) {
         auto* caps = C(t)->mutable_security_context()->mutable_capabilities();
         caps->add_drop("ALL");
         caps->add_add("NET_BIND_SERVICE");
       },
       {}},
      {"ALL in add",
       [](auto* t) { C(t)->mutable_security_context()->mutable_capabilities()->add_add("ALL"); },
       {"containers[0].security_context.capabilities.add[0]"}},
      {"CAP_ prefix",
       [](auto* t) {
         C(t)->mutable_security_context()->mutable_capabilities()->add_add("CAP_KILL");
       },
       {"containers[0].security_context.capabilities.add[0]"}},
      {"lower case",
       [](auto* t) { C(t)->mutable_security_context()->mutable_capabilities()->add_drop("kill"); },
       {"containers[0].security_context.capabilities.drop[0]"}},
      {"resources of a container",
       [](auto* t) { Limit(C(t)->mutable_resources(), "cpu", "1"); },
       {"containers[0].resources"}},
      {"resources of a container in a microvm",
       [](auto* t) {
         Microvm(t);
         Limit(C(t)->mutable_resources(), "cpu", "1");
       },
       {}},
  };
}

TEST(ContainersTest, MetadataAndContainers) { RunCases(MetadataAndContainers()); }
TEST(ContainersTest, ProbesMountsAndCapabilities) { RunCases(ProbesMountsAndCapabilities()); }

}  // namespace
}  // namespace torpor::api
