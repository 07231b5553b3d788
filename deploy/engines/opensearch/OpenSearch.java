import java.nio.file.Path;
import java.util.List;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.knn.plugin.KNNPlugin;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.script.mustache.MustachePlugin;
import org.opensearch.transport.Netty4Plugin;

/**
 * A node of OpenSearch with vectors, for tests: it speaks HTTP to this machine alone, and ends with its process.
 *
 * <pre>
 * java -cp 'opensearch/*' OpenSearch.java FOLDER PORT
 * </pre>
 */
public final class OpenSearch extends Node {
  private static final List<Class<? extends Plugin>> PLUGINS =
      List.of(Netty4Plugin.class, CommonAnalysisPlugin.class, MustachePlugin.class, KNNPlugin.class);

  private OpenSearch(Environment environment) {
    super(environment, PLUGINS, false);
  }

  public static void main(String[] arguments) throws Exception {
    Settings settings =
        Settings.builder()
            .put("path.home", arguments[0])
            .put("http.port", arguments[1])
            .put("network.host", "127.0.0.1")
            .put("transport.port", "0")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("node.name", "one")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    new OpenSearch(new Environment(settings, Path.of(arguments[0], "config"))).start();
    Thread.currentThread().join();
  }
}
