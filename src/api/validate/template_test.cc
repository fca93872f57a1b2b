// The bounds of the rest of a template: each at, above and below.

#include "api/testing/template_cases.h"
#include "base/testing/matchers.h"

namespace torpor::api {
namespace {

using namespace template_cases;

std::vector<Case> VolumesAndSnapshots() {
  return {
      {"32 volumes", [](auto* t) { AddVolumes(t, 32); }, {}},
      {"33 volumes", [](auto* t) { AddVolumes(t, 33); }, {"volumes"}},
      {"volume without a source", [](auto* t) { t->add_volumes()->set_name("v"); }, {"volumes[0]"}},
      {"volume with two sources",
       [](auto* t) {
         AddVolumes(t, 1);
         t->mutable_volumes(0)->mutable_system_info();
       },
       {"volumes[0]"}},
      {"image volume by tag",
       [](auto* t) {
         t->add_volumes()->set_name("v");
         t->mutable_volumes(0)->mutable_image()->set_reference("a:1");
       },
       {"volumes[0].image.reference"}},
      {"metadata files", [](auto* t) { Items(t, {{1, "a/name"}, {3, "a/uid"}}); }, {}},
      {"metadata field twice",
       [](auto* t) { Items(t, {{1, "a"}, {1, "b"}}); },
       {"volumes[0].system_info.data_sources[0].actor_metadata.items[1].field"}},
      {"metadata file twice",
       [](auto* t) { Items(t, {{1, "a"}, {2, "a"}}); },
       {"volumes[0].system_info.data_sources[0].actor_metadata.items[1].path"}},
      {"file that is a directory",
       [](auto* t) { Items(t, {{1, "a"}, {2, "a/b"}}); },
       {"volumes[0].system_info.data_sources[0].actor_metadata.items[1].path"}},
      {"no items",
       [](auto* t) { Items(t, {}); },
       {"volumes[0].system_info.data_sources[0].actor_metadata.items"}},
      {"path that climbs", [](auto* t) { Items(t, {{1, "../x"}}); }, {kItem0}},
      {"absolute path", [](auto* t) { Items(t, {{1, "/x"}}); }, {kItem0}},
      {"path of 255", [](auto* t) { Items(t, {{1, Repeat(255)}}); }, {}},
      {"path of 256", [](auto* t) { Items(t, {{1, Repeat(126) + "/" + Repeat(129)}}); }, {kItem0}},
      {"16 segments", [](auto* t) { Items(t, {{1, Repeat(15, "a/") + "a"}}); }, {}},
      {"17 segments", [](auto* t) { Items(t, {{1, Repeat(16, "a/") + "a"}}); }, {kItem0}},
      {"data source of two kinds",
       [](auto* t) {
         Items(t, {{1, "a"}});
         auto* bundle = t->mutable_volumes(0)
                            ->mutable_system_info()
                            ->mutable_data_sources(0)
                            ->mutable_trust_bundle();
         bundle->set_path("b");
         bundle->add_names("system-roots.ate.dev");
       },
       {"volumes[0].system_info.data_sources[0]"}},
      {"unknown trust bundle",
       [](auto* t) {
         auto* bundle = SystemInfo(t)->add_data_sources()->mutable_trust_bundle();
         bundle->set_path("b");
         bundle->add_names("other");
       },
       {"volumes[0].system_info.data_sources[0].trust_bundle.names[0]"}},
      {"no snapshot config", [](auto* t) { t->clear_snapshot_config(); }, {"snapshot_config"}},
      {"server's location", [](auto* t) { Snapshot(t)->clear_storage_location(); }, {}},
      {"bucket", [](auto* t) { Snapshot(t)->set_storage_location("s3://bucket/prefix"); }, {}},
      {"no bucket",
       [](auto* t) { Snapshot(t)->set_storage_location("gs://"); },
       {"snapshot_config.storage_location"}},
      {"other scheme",
       [](auto* t) { Snapshot(t)->set_storage_location("http://h/p"); },
       {"snapshot_config.storage_location"}},
      {"relative file",
       [](auto* t) { Snapshot(t)->set_storage_location("file://a/b"); },
       {"snapshot_config.storage_location"}},
      {"file that climbs",
       [](auto* t) { Snapshot(t)->set_storage_location("file:///a/../b"); },
       {"snapshot_config.storage_location"}},
      {"user info",
       [](auto* t) { Snapshot(t)->set_storage_location("s3://u:p@bucket"); },
       {"snapshot_config.storage_location"}},
      {"query",
       [](auto* t) { Snapshot(t)->set_storage_location("s3://bucket?x=1"); },
       {"snapshot_config.storage_location"}},
      {"location of 1024",
       [](auto* t) { Snapshot(t)->set_storage_location("file:///" + Repeat(508, "a/")); },
       {}},
      {"location of 1025",
       [](auto* t) { Snapshot(t)->set_storage_location("file:///" + Repeat(508, "a/") + "a"); },
       {"snapshot_config.storage_location"}},
      {"keeps 0", [](auto* t) { Snapshot(t)->set_keep_generations(0); }, {}},
      {"keeps 16", [](auto* t) { Snapshot(t)->set_keep_generations(16); }, {}},
      {"keeps 17",
       [](auto* t) { Snapshot(t)->set_keep_generations(17); },
       {"snapshot_config.keep_generations"}},
      {"unknown scope",
       [](auto* t) { Snapshot(t)->set_on_commit(static_cast<ateapi::SnapshotContentScope>(3)); },
       {"snapshot_config.on_commit"}},
      {"DATA without a volume",
       [](auto* t) { Snapshot(t)->set_on_commit(ateapi::SNAPSHOT_CONTENT_SCOPE_DATA); },
       {"snapshot_config.on_commit"}},
      {"DATA with a mounted volume",
       [](auto* t) {
         AddMounts(t, 1);
         Snapshot(t)->set_on_commit(ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
       },
       {}},
      {"DATA with a volume that is not mounted",
       [](auto* t) {
         AddVolumes(t, 1);
         Snapshot(t)->set_on_commit(ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
       },
       {"snapshot_config.on_commit"}},
      {"ROOTFS",
       [](auto* t) { Snapshot(t)->set_preferred_fidelity(torpor::v1::FIDELITY_ROOTFS); },
       {"snapshot_config.preferred_fidelity"}},
      {"ROOTFS in a microvm",
       [](auto* t) {
         Microvm(t);
         Snapshot(t)->set_preferred_fidelity(torpor::v1::FIDELITY_ROOTFS);
       },
       {}},
  };
}

std::vector<Case> Rest() {
  return {
      {"no sandbox config", [](auto* t) { t->clear_sandbox_config(); }, {"sandbox_config"}},
      {"no class",
       [](auto* t) { t->mutable_sandbox_config()->clear_sandbox_class(); },
       {"sandbox_config.sandbox_class"}},
      {"no config name",
       [](auto* t) { t->mutable_sandbox_config()->clear_config_name(); },
       {"sandbox_config.config_name"}},
      {"selector",
       [](auto* t) { (*t->mutable_worker_selector()->mutable_match_labels())["a/b"] = "c"; },
       {}},
      {"empty selector",
       [](auto* t) { t->mutable_worker_selector(); },
       {"worker_selector.match_labels"}},
      {"10 labels",
       [](auto* t) {
         for (int i = 0; i < 10; ++i)
           (*t->mutable_worker_selector()->mutable_match_labels())["k" + std::to_string(i)] = "";
       },
       {}},
      {"11 labels",
       [](auto* t) {
         for (int i = 0; i < 11; ++i)
           (*t->mutable_worker_selector()->mutable_match_labels())["k" + std::to_string(i)] = "";
       },
       {"worker_selector.match_labels"}},
      {"bad label",
       [](auto* t) { (*t->mutable_worker_selector()->mutable_match_labels())["a b"] = "c"; },
       {"worker_selector.match_labels"}},
      {"both limits",
       [](auto* t) {
         Limit(t->mutable_resources(), "cpu", "999");
         Limit(t->mutable_resources(), "memory", "1Gi");
       },
       {}},
      {"1000 cores",
       [](auto* t) { Limit(t->mutable_resources(), "cpu", "1000"); },
       {"resources.limits[0].quantity"}},
      {"no quantity",
       [](auto* t) { Limit(t->mutable_resources(), "cpu", ""); },
       {"resources.limits[0].quantity"}},
      {"zero",
       [](auto* t) { Limit(t->mutable_resources(), "memory", "0"); },
       {"resources.limits[0].quantity"}},
      {"negative",
       [](auto* t) { Limit(t->mutable_resources(), "memory", "-1"); },
       {"resources.limits[0].quantity"}},
      {"quantity of 33",
       [](auto* t) { Limit(t->mutable_resources(), "memory", "1." + Repeat(31, "0")); },
       {"resources.limits[0].quantity"}},
      {"gpu",
       [](auto* t) { Limit(t->mutable_resources(), "gpu", "1"); },
       {"resources.limits[0].name"}},
      {"limit twice",
       [](auto* t) {
         Limit(t->mutable_resources(), "cpu", "1");
         Limit(t->mutable_resources(), "cpu", "1");
       },
       {"resources.limits[1].name"}},
      {"small microvm",
       [](auto* t) {
         Microvm(t);
         Limit(t->mutable_resources(), "memory", "255Mi");
       },
       {"resources"}},
      {"smallest microvm",
       [](auto* t) {
         Microvm(t);
         Limit(t->mutable_resources(), "memory", "256Mi");
       },
       {}},
      {"pause after 0", [](auto* t) { Idle(t)->mutable_pause_after(); }, {}},
      {"pause after 1 s", [](auto* t) { Idle(t)->mutable_pause_after()->set_seconds(1); }, {}},
      {"pause after 0.9 s",
       [](auto* t) { Idle(t)->mutable_pause_after()->set_nanos(900000000); },
       {"idle_policy.pause_after"}},
      {"pause after 30 d",
       [](auto* t) { Idle(t)->mutable_pause_after()->set_seconds(30 * 86400); },
       {}},
      {"pause after more",
       [](auto* t) { Idle(t)->mutable_pause_after()->set_seconds(30 * 86400 + 1); },
       {"idle_policy.pause_after"}},
      {"pause after -1 s",
       [](auto* t) { Idle(t)->mutable_pause_after()->set_seconds(-1); },
       {"idle_policy.pause_after"}},
      {"no duration",
       [](auto* t) {
         Idle(t)->mutable_pause_after()->set_seconds(5);
         Idle(t)->mutable_pause_after()->set_nanos(-1);
       },
       {"idle_policy.pause_after"}},
      {"suspend before pause",
       [](auto* t) {
         Idle(t)->mutable_pause_after()->set_seconds(9);
         Idle(t)->mutable_suspend_after()->set_seconds(8);
       },
       {"idle_policy.suspend_after"}},
      {"suspend never",
       [](auto* t) {
         Idle(t)->mutable_pause_after()->set_seconds(9);
         Idle(t)->mutable_suspend_after();
       },
       {}},
      {"freeze after pause",
       [](auto* t) {
         Idle(t)->mutable_pause_after()->set_seconds(9);
         Idle(t)->mutable_freeze_after()->set_seconds(10);
       },
       {"idle_policy.freeze_after"}},
      {"awake 24 h", [](auto* t) { Idle(t)->mutable_max_keep_awake()->set_seconds(86400); }, {}},
      {"awake longer",
       [](auto* t) { Idle(t)->mutable_max_keep_awake()->set_seconds(86401); },
       {"idle_policy.max_keep_awake"}},
      {"100 reverts", [](auto* t) { t->mutable_crash_policy()->set_max_reverts(100); }, {}},
      {"101 reverts",
       [](auto* t) { t->mutable_crash_policy()->set_max_reverts(101); },
       {"crash_policy.max_reverts"}},
      {"window 1 min",
       [](auto* t) { t->mutable_crash_policy()->mutable_window()->set_seconds(60); },
       {}},
      {"window 59 s",
       [](auto* t) { t->mutable_crash_policy()->mutable_window()->set_seconds(59); },
       {"crash_policy.window"}},
      {"window 24 h 1 s",
       [](auto* t) { t->mutable_crash_policy()->mutable_window()->set_seconds(86401); },
       {"crash_policy.window"}},
      {"warmup 10 min",
       [](auto* t) { t->mutable_golden_config()->mutable_warmup()->set_seconds(600); },
       {}},
      {"warmup longer",
       [](auto* t) { t->mutable_golden_config()->mutable_warmup()->set_seconds(601); },
       {"golden_config.warmup"}},
      {"port 1", [](auto* t) { t->set_http_port(1); }, {}},
      {"port 65535", [](auto* t) { t->set_http_port(65535); }, {}},
      {"port 65536", [](auto* t) { t->set_http_port(65536); }, {"http_port"}},
      {"port -1", [](auto* t) { t->set_http_port(-1); }, {"http_port"}},
      {"h2c", [](auto* t) { t->mutable_http()->set_protocol("h2c"); }, {}},
      {"spdy", [](auto* t) { t->mutable_http()->set_protocol("spdy"); }, {"http.protocol"}},
      {"negative park budget",
       [](auto* t) { t->mutable_http()->mutable_park_budget()->set_seconds(-1); },
       {"http.park_budget"}},
      {"negative body",
       [](auto* t) { t->mutable_http()->set_max_body_bytes(-1); },
       {"http.max_body_bytes"}},
      {"unknown pause sync",
       [](auto* t) { t->set_pause_sync(static_cast<torpor::v1::PauseSync>(9)); },
       {"pause_sync"}},
      {"two faults at once",
       [](auto* t) {
         t->set_http_port(-1);
         C(t)->set_name("A");
       },
       {"containers[0].name", "http_port"}},
  };
}

TEST(TemplateTest, VolumesAndSnapshots) { RunCases(VolumesAndSnapshots()); }
TEST(TemplateTest, Rest) { RunCases(Rest()); }

TEST(TemplateTest, WhatComesLaterIsUnimplemented) {
  ateapi::CreateActorTemplateRequest request;
  *request.mutable_actor_template() = testing_requests::Template();
  ateapi::Volume* volume = request.mutable_actor_template()->add_volumes();
  volume->set_name("v");
  volume->mutable_external_volume_template()->set_capacity("1Gi");
  volume->mutable_external_volume_template()->set_storage_class_name("fast");
  EXPECT_THAT(Validate(request), HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  volume->mutable_external_volume_template()->set_capacity("much");
  EXPECT_THAT(Validate(request), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
}

TEST(TemplateTest, DefaultsShow) {
  ActorTemplate t = testing_requests::Template();
  t.mutable_containers(0)->mutable_wakeup_probe()->mutable_http_get()->set_port(80);
  t.mutable_status()->mutable_golden_snapshot_status()->set_error_message("mine");
  ApplyDefaults(&t);
  EXPECT_FALSE(t.has_status());
  EXPECT_EQ(t.http_port(), 80);
  ASSERT_EQ(t.resources().limits_size(), 2);
  EXPECT_EQ(t.resources().limits(0).quantity(), "512Mi");
  EXPECT_EQ(t.resources().limits(1).quantity(), "1");
  EXPECT_EQ(t.containers(0).wakeup_probe().timeout_seconds(), 30);
  EXPECT_EQ(t.containers(0).wakeup_probe().http_get().path(), "/");
  EXPECT_EQ(t.snapshot_config().on_commit(), ateapi::SNAPSHOT_CONTENT_SCOPE_FULL);
}

TEST(TemplateTest, DefaultsLeaveWhatIsSet) {
  ActorTemplate t = testing_requests::Template();
  t.set_http_port(8080);
  Limit(t.mutable_resources(), "cpu", "250m");
  t.mutable_snapshot_config()->set_preferred_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ApplyDefaults(&t);
  EXPECT_EQ(t.http_port(), 8080);
  EXPECT_EQ(t.resources().limits(0).quantity(), "250m");
  EXPECT_EQ(t.resources().limits(1).name(), "memory");
  EXPECT_EQ(t.snapshot_config().on_commit(), ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
}

}  // namespace
}  // namespace torpor::api
