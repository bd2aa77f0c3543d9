package tidegauge;

import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.util.Arrays;

/**
 * Runs a program that listens on loopback wherever it names no address:
 * `java --add-opens=java.base/java.net=ALL-UNNAMED tidegauge.Loopback CLASS ARGUMENT...`.
 *
 * <p>The JVM keeps its wildcard address in a field. Every server socket without an address of its
 * own gets it from there, in whatever library. An explicit 0.0.0.0 still means all interfaces.
 */
public final class Loopback {
    private Loopback() {}

    public static void main(String[] arguments) throws Throwable {
        listen();
        var rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        var main = Class.forName(arguments[0]).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) rest);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private static void listen() throws ReflectiveOperationException {
        var resolver = InetAddress.class.getDeclaredField("impl");
        resolver.setAccessible(true);
        var found = resolver.get(null);
        var wildcard = found.getClass().getDeclaredField("anyLocalAddress");
        wildcard.setAccessible(true);
        wildcard.set(found, InetAddress.getLoopbackAddress());
    }
}
